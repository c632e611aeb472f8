"""The source paper again: its experiments run anew, each printed number beside ours (`dpverify reproduce`)."""
