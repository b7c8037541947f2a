from adversaries.errors import InputError as InputError
from fedsim.commands.account import account as account
from fedsim.commands.answer import Answer as Answer
from fedsim.commands.attack import attack as attack
from fedsim.commands.audit import audit as audit
from fedsim.commands.choose import choose as choose
from fedsim.commands.config import config as config
from fedsim.commands.data import data as data
from fedsim.commands.init import init as init
from fedsim.commands.pac import pac as pac
from fedsim.commands.predict import predict as predict
from fedsim.commands.report import report as report
from fedsim.commands.run import Run as Run
from fedsim.commands.run import Training as Training
from fedsim.commands.run import load as load
from fedsim.commands.run import load_model as load_model
from fedsim.commands.run import run as run
from fedsim.commands.run import train as train
from fedsim.commands.sensitivity import sensitivity as sensitivity
from fedsim.commands.verify import verify as verify
from fedsim.configuration import Config as Config

DISTRIBUTION: str
__version__: str
