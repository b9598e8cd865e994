"""Models in files: a generic container, and the codec of specifications. No code of a file is executed."""

from rfgp.saving.gp import row_terms as row_terms
from rfgp.saving.models import Saved as Saved
from rfgp.saving.models import read as read
from rfgp.saving.models import write as write
