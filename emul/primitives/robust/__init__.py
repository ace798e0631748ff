"""Rules that aggregate updates some of which may be malicious: (n, d) in, an aggregate and what was kept out.

`aggregation`  the one type of result, its errors, and sums over rows
`distances`    squared distances of all pairs of rows
`krum`         Krum and Multi-Krum            `bulyan`     Krum repeated, then the coordinates around the median
`coordinates`  median and trimmed mean        `geometric`  smoothed geometric median
`clipping`     norm clipping, centred clipping
`foolsgold`    weights by how alike the histories of clients are        `fltrust`  weights by a reference update
`rules`        all of them by name, as a scenario writes them
"""

from emul.primitives.robust.aggregation import Aggregation, TooManyByzantine, Updates
from emul.primitives.robust.bulyan import bulyan
from emul.primitives.robust.clipping import centred_clipping, norm_clipping
from emul.primitives.robust.coordinates import coordinate_median, trimmed_mean
from emul.primitives.robust.fltrust import fltrust
from emul.primitives.robust.foolsgold import History, foolsgold
from emul.primitives.robust.geometric import geometric_median
from emul.primitives.robust.krum import krum, multi_krum
from emul.primitives.robust.rules import RULES, Chosen, Given, Rule, choose

__all__ = ["RULES", "Aggregation", "Chosen", "Given", "History", "Rule", "TooManyByzantine", "Updates", "bulyan",
           "centred_clipping", "choose", "coordinate_median", "fltrust", "foolsgold", "geometric_median", "krum",
           "multi_krum", "norm_clipping", "trimmed_mean"]
