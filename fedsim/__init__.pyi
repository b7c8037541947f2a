from adversaries.errors import InputError as InputError
from fedsim.api import Advantage as Advantage
from fedsim.api import Audit as Audit
from fedsim.api import LowerBound as LowerBound
from fedsim.api import Run as Run
from fedsim.api import audit as audit
from fedsim.api import load as load
from fedsim.api import run as run
from fedsim.api_answers import data as data
from fedsim.api_answers import draw_canaries as draw_canaries
from fedsim.api_answers import one_run as one_run
from fedsim.api_answers import pac as pac
from fedsim.api_answers import reconstruct as reconstruct
from fedsim.api_answers import sensitivity as sensitivity
from fedsim.api_studies import cluster as cluster
from fedsim.api_studies import compare as compare
from fedsim.api_studies import load_model as load_model
from fedsim.api_studies import membership as membership
from fedsim.api_studies import predict as predict
from fedsim.api_studies import rehearse as rehearse
from fedsim.api_studies import train as train
from fedsim.api_studies import verify as verify
from fedsim.config import Config as Config
from fedsim.studies.choose.choosing import Selection as Selection
from fedsim.studies.choose.choosing import choose as choose
from fedsim.studies.guarantees.accounting import account as account

DISTRIBUTION: str
__version__: str
