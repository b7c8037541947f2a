"""The table of refused combinations of settings, with the reason for each.

A row reads "WHAT: NEEDS | WHY | INSTEAD" (`fedsim.configuration.needs`);
docs/reference/configuration.md shows it.
"""

from fedsim.configuration.needs import rows

REFUSED = rows(
    """
# Messages that the server sees
not trust.summed_securely: federation.secure-aggregation is "simulated"
    | With this trust, the server sees every message. | set federation.trust = "distributed"
federation.secure-aggregation is "secagg+": federation.tolerated-dropouts is 0;
    federation.sampling-rate is 1.0
    | Where clients may be missing, a server could name different ones to each client, and so
      unmask a single message.
    | set federation.secure-aggregation = "simulated"
federation.auditor-sees is "messages": federation.trust is "local"
    | An auditor may see a message only if the message carries the whole noise.
    | set federation.auditor-sees = "sums"
challenge.kind is not "record": challenge.replacement is -1
    | Only a record of D is replaced by a record of the pool. | set challenge.kind = "record"
# Trials in both worlds
trials.count is above 1: trials.count is even
    | Half of the trials train on D and half on D'.
    | set an even trials.count, or trials.count = 1 for a training alone
# Units of privacy
privacy.unit is "client": training.sampling-rate is 1.0; training.local-steps is 1;
    training.clipping is true; challenge.record is -1;
    challenge.replacement is -1
    | A client sends one clipped update, and all its records are the target.
    | set privacy.unit = "record"
federation.sampling-rate is below 1: privacy.neighbouring is "add-remove"; privacy.sensitivity is
    "global"; privacy.noise-source is "seed"; training.local-steps is 1;
    canaries.count is 0; run.job is "experiment"
    | The sampling of clients is simulated, with coins drawn from the seed.
    | set federation.sampling-rate = 1.0
federation.sampling-rate is below 1; privacy.unit is "client"; trust.server_draws:
    federation.tolerated-dropouts is 0; federation.dropout-rate is 0
    | The clients that join a round stay secret, but a missing client would be named.
    | set federation.trust = "distributed"
privacy.unit is "record": training.local-epochs is 1; training.batch-size is 0
    | A client sends gradients, and one record is the target. | set privacy.unit = "client"
challenge.client is at least 0: challenge.record is -1
    | A record that you choose decides the client that holds it. | set challenge.client = -1
# Steps
training.optimizer is not "sgd": training.momentum is 0
    | Only "sgd" has this momentum. The momentum of "adam" is 0.9.
    | set training.optimizer = "sgd"
training.local-steps is 1; privacy.unit is "record": training.local-learning-rate is 0
    | No client takes steps on its own model. | set training.local-steps above 1
privacy.neighbouring is "replace"; training.sampling-rate is below 1: privacy.sensitivity is
    "global"
    | No single distance describes the sampled pair. | set privacy.neighbouring = "add-remove"
# Local steps
training.local-steps is above 1: trust.local_steps
    | Each client must add the noise itself before its next local step.
    | set training.local-steps = 1
training.local-steps is above 1; training.sampling-rate is below 1: privacy.neighbouring is
    "add-remove"
    | A sum shows how often one record was drawn, but not which record of a pair.
    | set privacy.neighbouring = "add-remove"
training.local-steps is above 1: privacy.sensitivity is "global"
    | Sensitivity is measured at the model of the round, not at the models of local steps.
    | set training.local-steps = 1
training.local-steps is above 1: audit.mode is "participant"
    | After local steps, the noise alone does not determine the belief.
    | set training.local-steps = 1
training.local-steps is above 1: federation.colluding is 0; federation.tolerated-dropouts is 0
    | The accounting assumes that all clients answer and keep their noise to themselves.
    | set training.local-steps = 1
# Integers of a public range
trust.summed_securely: training.clipping is true
    | Clients send integers of a public range, and without clipping nothing bounds their sums.
    | set federation.trust = "local"
trust.summed_securely: privacy.sensitivity is "global"
    | The range of the integers that clients send must not depend on the data.
    | set federation.trust = "local"
# Unbounded sums, and targets that no noise meets
training.clipping is false: privacy.rho-beta is 0; privacy.rho-alpha is 0; privacy.max-risk is 0;
    privacy.epsilon is 0
    | Nothing bounds what one record can change, so no noise meets a target. Give
      privacy.noise-multiplier.
    | set training.clipping = true
training.clipping is false: privacy.stop-at is 0
    | Nothing bounds what one record can change, so epsilon is infinite from the first round on.
    | set training.clipping = true
# Canaries
canaries.count is above 0: training.clipping is true; training.sampling-rate is 1.0;
    training.local-steps is 1; privacy.sensitivity is "global"
    | Canaries are not supported with this setting. | set canaries.count = 0
trust.summed_securely: canaries.count is 0
    | The integers that clients send have no room for canaries.
    | set federation.trust = "local" or "central"
federation.vantage is "released-model": canaries.count is 0
    | Beliefs about the released model replay the training without canaries.
    | set federation.vantage = "participant"
audit.vantages is "all": canaries.count is 0
    | Beliefs about the released model replay the training without canaries.
    | set audit.vantages = "configured"
canaries.count is above 0; privacy.unit is "client": canaries.kind is "gradient"
    | With this unit, a canary stands for a client. | set privacy.unit = "record"
canaries.count is above 0; privacy.unit is "client": canaries.known-data is false
    | Clients send updates, not sums over records. | set privacy.unit = "record"
# Crafted challenges
privacy.unit is "client": challenge.kind is "record"
    | All records of a client are the target. | set privacy.unit = "record"
model.weights-sha256 is not "": model.weights is not "glorot"
    | This hash is the hash of a file of initial values.
    | set model.weights to the path of that file
model.initialisation is "worst-case": privacy.unit is "record"
    | This initial model is trained on all records except the target record.
    | set model.initialisation = "random"
model.initialisation is "worst-case"; challenge.kind is "record": challenge.record is at least 0
    | This initial model is trained on all records except the target record, which must be known
      first.
    | set another challenge.kind or model.initialisation = "random"
challenge.kind is "gradient": training.clipping is true
    | A gradient target is a vector of the clipping norm. | set another challenge.kind
# Rounded gradients
audit.mode is "participant": run.precision is "float32"
    | The participant would compare sums in full precision with rounded sums.
    | set audit.mode = "oracle"
privacy.sensitivity is "local": run.precision is "float32"
    | The sensitivity of rounded gradients differs from the measured sensitivity.
    | set privacy.sensitivity = "global"
# Clients' own records
data.name is "own": data.public-schema is not ""; run.job is not "experiment"; federation.partition
    is "iid"; data.classes is ""
    | Each client has its own records, and no other party reads them.
    | set data.name to a data set that all parties have
data.public-schema is not "": data.name is one of "own", "csv"
    | A schema describes the clients' own records, or a table. | set data.public-schema = ""
data.name is "csv"; data.public-schema is not "": data.exclude is ""; data.classes is ""
    | The schema decides which columns and classes are used. | edit the schema
data.name is "csv"; run.job is "training": data.public-schema is not ""
    | Without a schema, the model carries the scale of columns and the names of categories that are
      read from the records, and no noise covers them. "fedsim data TABLE --label LABEL" proposes
      a schema.
    | set data.name = "own"
# Texts for next-token training
model.task is "next-token": model.name is "hugging-face"; data.name is one of "own", "texts";
    challenge.kind is one of "record", "gradient"; privacy.unit is "record"; canaries.kind is
    "gradient"
    | The records are texts without labels. | set model.task = "classification"
data.name is "texts": model.task is "next-token"
    | These texts have no labels. | set data.name = "own" with a schema that names classes
# Predicted numbers
model.task is "regression": challenge.kind is one of "record", "gradient"; data.classes is "";
    model.class-priors is ""
    | The labels are numbers. | set model.task = "classification"
model.task is "huber": challenge.kind is one of "record", "gradient"; data.classes is "";
    model.class-priors is ""
    | The labels are numbers. | set model.task = "classification"
data.target is not "": model.task is one of "regression", "huber"
    | A range of labels is for tasks that predict a number. | set data.target = ""
model.class-priors is not "": model.task is "classification"
    | Class priors are for records with classes. | set model.class-priors = ""
# Trainings without an adversary
run.job is "training": training.clipping is true; privacy.sensitivity is "global";
    federation.colluding is 0
    | The guarantee of a training covers every record and every client.
    | rehearse the training (fedsim run)
run.job is "training": challenge.kind is "record"; canaries.count is 0
    | A training has no target, and its clients' records are not changed.
    | rehearse the training (fedsim run)
run.job is "training": model.initialisation is not "worst-case"
    | The initial model would be trained on the records without noise.
    | rehearse the training (fedsim run)
# A chosen pair
privacy.neighbouring is "add-remove": challenge.replacement is -1
    | With this neighbouring relation, no record is replaced. | set privacy.neighbouring = "replace"
privacy.neighbouring is "replace"; challenge.kind is "record"; challenge.record is at least 0:
    challenge.replacement is at least 0
    | With "replace", choose both the target and its replacement, or neither.
    | leave both at -1, to choose them by dissimilarity
privacy.neighbouring is "replace"; challenge.kind is "record"; challenge.replacement is at least 0:
    challenge.record is at least 0
    | With "replace", choose both the target and its replacement, or neither.
    | leave both at -1, to choose them by dissimilarity
"""
)
"""The rows in the order of the checks."""
