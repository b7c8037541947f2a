"""An auditor's node: a further SuperNode that receives what every client receives.

It appends what it receives to a transcript on its own disk, and replies at once with an empty
message, so that the server need not wait. Another process on the same machine reads the growing
transcript and computes the beliefs (`fedsim.audits.live.live_audit`, which documents its contents).
"""

from pathlib import Path

from flwr.app import Context, Message

import fedsim
from adversaries.errors import InputError
from fedsim.configuration import from_run_config, to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request


def transcript_path(context: Context) -> Path:
    """Return the folder in which this node records a run: RUN_ID.fedt in `transcript-path`."""
    folder = str(context.node_config.get("transcript-path", ""))
    if not folder:
        raise InputError(
            "this node is an auditor, but its node config lacks a folder for transcripts; start it "
            'with --node-config \'role="auditor" transcript-path="/some/folder"\''
        )
    return Path(folder) / f"{context.run_id}.fedt"


def record(message: Message, context: Context) -> Message:
    """Append the content of a message to the transcript of its run, and return an empty reply.

    The run's configuration is included, so that the transcript alone is enough for an audit.
    """
    # A client's node also loads this module, to know that it is not an auditor.
    from fedsim.federation.transcripts.records import (  # noqa: PLC0415
        AUDITOR,
        NodeReply,
        ObservedRound,
        TranscriptFacts,
    )
    from fedsim.federation.transcripts.writer import Writer  # noqa: PLC0415

    request = Request.from_content(message.content)
    content = message.content
    arrays = {"parameters": messages.only(content.array_records[messages.MODEL])}
    participants, sent = None, dict[int, NodeReply]()
    if messages.AGGREGATE in content.array_records:
        arrays["sum"] = messages.only(content.array_records[messages.AGGREGATE])
        participants = messages.participants(content)
    if messages.SENT in content.array_records:
        replies = messages.arrays_of(content.array_records[messages.SENT])
        sent = {int(client): NodeReply({"sum": array}) for client, array in replies.items()}
    # Validated before it is written, so that this fedsim can read the configuration again.
    config = to_run_config(from_run_config(context.run_config))
    details = {
        "request.first-trial": request.first_trial,
        "request.record": request.record,
        "request.replacement": request.replacement,
        "request.target-client": request.target_client,
        "request.noise-multiplier": request.noise_multiplier,
        "request.earlier": request.earlier,
        "request.released": request.released,
        "request.begun": request.begun,
    }
    path = transcript_path(context)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    versions = {"fedsim": fedsim.__version__}
    facts = TranscriptFacts(
        "auditor", AUDITOR, "fedsim", run=str(context.run_id), versions=versions
    )
    with Writer(path, facts) as writer:
        writer.append(
            ObservedRound(
                request.round,
                arrays,
                replies=sent,
                participants=participants,
                mechanism={**config, **details},
            )
        )
        # The last message of the last batch of trials ends the transcript.
        count = config["trials.count"]
        assert isinstance(count, int)
        last = request.first_trial + request.trials >= count
        if message.metadata.message_type.startswith("evaluate") and last:
            writer.end()
    return messages.reply(message, messages.AUDITOR)
