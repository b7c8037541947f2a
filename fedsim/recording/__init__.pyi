from fedsim.recording.flower import canary_mod as canary_mod
from fedsim.recording.flower import record as record
from fedsim.recording.flower import recording_mod as recording_mod
from fedsim.recording.loop import Accounted as Accounted
from fedsim.recording.loop import Recorder as Recorder
from fedsim.recording.nvflare_filter import NVFlareFilter as NVFlareFilter
from fedsim.recording.opacus_steps import opacus as opacus
from fedsim.recording.pfl_mechanism import pfl as pfl
