"""One posterior sample of a Kalman filter, verified against a claim about mu."""

import dpverify as dpv
from dpverify.gallery.posterior import FIRST, MU, SECOND, PosteriorSample

if __name__ == "__main__":
    print(dpv.verify(PosteriorSample(), FIRST, SECOND, claim=dpv.claims.gaussian(MU), delta=0.01))
