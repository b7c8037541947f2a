from fedsim.audits.recording.flower import record as record
from fedsim.audits.recording.loop import Recorder as Recorder
from fedsim.audits.recording.opacus_steps import opacus as opacus
from fedsim.audits.steps.watch import Accounted as Accounted
