"""An adversarial campaign: random hostile cases against independent oracles.

``make torture`` runs it for some minutes, ``make test`` runs the first cases of every
campaign. It is not part of the installed package.
"""
