"""Average consensus with decaying noise: all messages are public, and the initial state of one agent is hidden."""

import dpverify as dpv
from dpverify.gallery.consensus import FIRST, SECOND, PrivateConsensus

if __name__ == "__main__":
    mechanism = PrivateConsensus(own_weight=0.9, decay=0.5)
    print(dpv.verify(mechanism, FIRST, SECOND, claim=mechanism.claim()))
