"""Models in files: a container that knows no model, and the codec of specifications. Nothing in it is ever executed."""

from rfgp.saving.models import Codec as Codec
from rfgp.saving.models import Saved as Saved
from rfgp.saving.models import read as read
from rfgp.saving.models import write as write
