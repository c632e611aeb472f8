#!/usr/bin/perl
# A private exponential smoother: x_k = x_{k-1} + (y_k - x_{k-1}) / 2 from x_0 = 0, released with Laplace noise.
#
#     dpverify verify --first a.csv --second b.csv --epsilon 0.5 -- perl smoother.pl
#
# For each block: read `runs seed n` and n numbers, write `runs` lines of n numbers, flush. End when the input ends.
use strict;
use warnings;
use IO::Handle;

my $scale = @ARGV ? $ARGV[0] : 1;

while (my $line = <STDIN>) {
    my ($runs, $seed, $n) = split ' ', $line;
    my ($before, @x) = (0);
    push @x, $before += ($_ - $before) / 2 for split ' ', <STDIN>;
    srand($seed);
    for (1 .. $runs) {
        print join(' ', map { $_ + $scale * (log(1 - rand) - log(1 - rand)) } @x), "\n";
    }
    STDOUT->flush();
}
