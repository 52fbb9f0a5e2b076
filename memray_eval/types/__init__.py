"""The frozen values of a run: Sample -> Response -> Score -> Record -> Summary. All that the files
here define is taken from here; json_text.py has their text."""

from memray_eval.types.base import *
from memray_eval.types.responses import *
from memray_eval.types.samples import *
from memray_eval.types.scores import *
from memray_eval.types.summaries import *
