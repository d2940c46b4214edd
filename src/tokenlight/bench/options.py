"""What a benchmark can be told in a word."""

from typing import Literal

BadRows = Literal["skip", "refuse"]
RemovalName = Literal["delete", "pad", "mask"]  # how tokens are taken away
