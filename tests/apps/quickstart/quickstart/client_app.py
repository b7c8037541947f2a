"""The client: trains on its digits. `app_for` says which mods stand around it."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.clientapp.typing import ClientAppCallable, Mod

from quickstart.task import Net, evaluate, load_data, train

app = ClientApp()


def mods(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Run the mods that the run config asks for: a real app lists them instead."""
    training = message.metadata.message_type.startswith("train")
    for mod in reversed(_chosen(context, training)):
        call_next = _around(mod, call_next)
    return call_next(message, context)


def _around(mod: Mod, call_next: ClientAppCallable) -> ClientAppCallable:
    return lambda message, context: mod(message, context, call_next)


def _chosen(context: Context, training: bool) -> list[Mod]:
    """Return the mods; Flower's own DP mods are for training alone."""
    config, chosen = context.run_config, []
    norm = config["clipping-norm"]
    local_dp = LocalDpMod(norm, norm, config["local-epsilon"], config["local-delta"])
    if training and config["privacy"] == "local":
        chosen.append(local_dp)
    if training and config["privacy"] == "client":
        chosen.append(fixedclipping_mod)
    return chosen


@app.train(mods=[mods])
def training(message: Message, context: Context) -> Message:
    """Train the received model and send it back."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = _data(context)
    config = context.run_config
    loss = train(net, images, labels, config["local-epochs"], config["learning-rate"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate(mods=[mods])
def evaluation(message: Message, context: Context) -> Message:
    """Measure the received model."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = _data(context)
    metrics = MetricRecord({"accuracy": evaluate(net, images, labels), "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def _data(context: Context):  # type: ignore[no-untyped-def]
    return load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
