"""The command `dpverify`: `commands` has the commands and their options, `app` what all of them have in common.

The exit status is the first of these that applies; the page of the commands shows this list:

2   wrong usage, bad input, a file that cannot be written, or an exception of the mechanism, in one line
1   a claim is refuted
3   no answer: a voiding diagnostic, too little power for `detects`, interrupted, workers or disk lost, the process
    ended by the mechanism, or an internal error with its traceback
0   no claim is refuted, or there is no claim
"""

from dpverify.cli.app import entry as entry
from dpverify.cli.app import main as main
