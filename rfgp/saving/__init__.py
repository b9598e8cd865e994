"""Models in files: a container that knows no model, and codecs of the families. Nothing in a file is ever executed."""

from rfgp.saving.models import Codec as Codec
from rfgp.saving.models import Saved as Saved
from rfgp.saving.models import read as read
from rfgp.saving.models import write as write
from rfgp.saving.tables import FEATURES as FEATURES
from rfgp.saving.tables import KERNELS as KERNELS
from rfgp.saving.tables import TABLES as TABLES
