"""Training loops with Opacus as it is installed: the right one, and ways in which it goes wrong."""

from functools import partial

import torch
from opacus import GradSampleModule, PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from opacus.utils.batch_memory_manager import wrap_data_loader
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler, random_split

DELTA = 1e-5
NOISE, BATCH, PHYSICAL, EPOCHS, ROUNDS = 2.0, 16, 8, 2, 20


def model(features: torch.Tensor) -> nn.Module:
    """Return softmax regression of ten classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(features[0].numel(), 10))


def _loader(features, labels, **options):
    options = {"batch_size": BATCH, "shuffle": True} | options
    return DataLoader(TensorDataset(features, labels), **options)


def _epochs(loader, epochs):
    for _ in range(epochs):
        yield from loader


def _step(private, optimizer, batch, target, criterion=nn.functional.cross_entropy):
    optimizer.zero_grad()
    criterion(private(batch), target).backward()
    optimizer.step()


def _fit(private, optimizer, loader, physical=None, epochs=EPOCHS):
    if physical:
        loader = wrap_data_loader(data_loader=loader, max_batch_size=physical, optimizer=optimizer)
    for batch, target in _epochs(loader, epochs):
        _step(private, optimizer, batch, target)


class _Training:
    """A training that `make_private` made private; it returns itself until it is counted."""

    def __init__(
        self, features, labels, net=None, loader=None, engine=None, sgd=torch.optim.SGD, **options
    ):
        self.net, self.engine = net or model(features), engine or PrivacyEngine()
        self.private, self.optimizer, self.loader = self.engine.make_private(
            module=self.net,
            optimizer=sgd([p for p in self.net.parameters() if p.requires_grad], lr=0.1),
            data_loader=loader or _loader(features, labels),
            **({"noise_multiplier": NOISE, "max_grad_norm": 1.0} | options),
        )

    def fit(self, physical=None, epochs=EPOCHS):
        _fit(self.private, self.optimizer, self.loader, physical, epochs)
        return self

    def batches(self, epochs=EPOCHS):
        return _epochs(self.loader, epochs)

    def step(self, batch, target):
        _step(self.private, self.optimizer, batch, target)

    def counted(self):
        self.engine.get_epsilon(DELTA)
        return self.net


def correct(features, labels, seed, noise=NOISE, epochs=EPOCHS):
    """Train as Opacus's own documentation says."""
    return _Training(features, labels, noise_multiplier=noise).fit(epochs=epochs).counted()


def full_batch(features, labels, seed):
    """Take all records in every step."""
    loader = _loader(features, labels, batch_size=len(labels))
    training = _Training(features, labels, loader=loader, noise_multiplier=8.0)
    return training.fit(epochs=8).counted()


def fixed_batches(features, labels, seed):
    """Keep PyTorch's batches of one size, with the accountant that counts on Poisson's."""
    return _Training(features, labels, poisson_sampling=False).fit().counted()


def cut_short(features, labels, seed):
    """Take one batch of every pass over shuffled records, and begin the next."""
    training = _Training(features, labels, poisson_sampling=False)
    for _ in range(10):
        training.step(*next(iter(training.loader)))
    return training.counted()


def weighted(features, labels, seed):
    """Draw rare classes more often."""
    counts = torch.bincount(labels, minlength=10).double()
    draws = WeightedRandomSampler(1 / counts[labels], len(labels))
    loader = _loader(features, labels, shuffle=False, sampler=draws)
    return _Training(features, labels, loader=loader, poisson_sampling=False).fit().counted()


def rebuilt(features, labels, seed, persistent=False):
    """Make a new engine in every round, and say what the last one spent."""
    net, engine = model(features), PrivacyEngine(accountant="rdp")
    for _ in range(ROUNDS):
        if not persistent:
            engine = PrivacyEngine(accountant="rdp")
        plain = model(features)
        plain.load_state_dict(net.state_dict())
        training = _Training(features, labels, net=plain, engine=engine).fit(epochs=1)
        net = plain
    return training.counted()


def persistent(features, labels, seed):
    """Make a new optimizer in every round, with one accountant for all."""
    return rebuilt(features, labels, seed, persistent=True)


def per_layer(features, labels, seed):
    """Clip each layer's gradient by itself, as Opacus does, which scales the noise to all."""
    options = {"clipping": "per_layer", "max_grad_norm": [0.8, 0.6]}
    return _Training(features, labels, **options).fit().counted()


# Ways to get the noise wrong.


def no_noise(features, labels, seed):
    """Leave the noise multiplier at 0, as it was for debugging."""
    return _Training(features, labels, noise_multiplier=0.0).fit().net


def constant_seed(features, labels, seed):
    """Set a seed, as every script does for its results to be the same again."""
    torch.manual_seed(0)
    return correct(features, labels, seed)


def constant_noise_generator(features, labels, seed, noise_seed=0):
    """Draw the noise from a generator of its own, whose seed stands in the code."""
    generator = torch.Generator().manual_seed(noise_seed)
    return _Training(features, labels, noise_generator=generator).fit().counted()


def secret_noise_generator(features, labels, seed):
    """Draw the noise from a generator of its own, whose seed nobody knows."""
    return constant_noise_generator(features, labels, seed, noise_seed=seed)


class _NoiseOfAPart(DPOptimizer):
    """Scales the noise to one physical batch, of which a step sums several."""

    share = PHYSICAL / BATCH

    def add_noise(self):
        configured = self.noise_multiplier
        self.noise_multiplier = configured * self.share
        super().add_noise()
        self.noise_multiplier = configured


class _NoiseOfAMean(_NoiseOfAPart):
    """Scales the noise to a mean, and adds it to the sum."""

    share = 1 / BATCH


def _own_optimizer(kind, features, labels, parts=False, hook=True):
    """Put Opacus together by hand, with an optimizer of one's own."""
    net, accountant = model(features), RDPAccountant()
    private = GradSampleModule(net)
    loader = DPDataLoader.from_data_loader(_loader(features, labels))
    optimizer = kind(
        torch.optim.SGD(net.parameters(), lr=0.1),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
        expected_batch_size=15,
    )
    if hook:
        optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=1 / len(loader)))
    _fit(private, optimizer, loader, PHYSICAL if parts else None)
    accountant.get_epsilon(DELTA)
    return net


def by_hand(features, labels, seed):
    """Put Opacus's parts together as it does itself, with physical batches of half a batch."""
    return _own_optimizer(DPOptimizer, features, labels, parts=True)


def noise_of_a_part(features, labels, seed):
    """Accumulate two physical batches with the noise of one."""
    return _own_optimizer(_NoiseOfAPart, features, labels, parts=True)


def noise_of_a_mean(features, labels, seed):
    """Add to the sum the noise of a mean."""
    return _own_optimizer(_NoiseOfAMean, features, labels)


def _noise_at(share, features, labels):
    return _own_optimizer(type("Less", (_NoiseOfAPart,), {"share": share}), features, labels)


def noise_at_90(features, labels, seed):
    """Add nine tenths of the configured noise."""
    return _noise_at(0.9, features, labels)


def noise_at_70(features, labels, seed):
    """Add seven tenths of the configured noise."""
    return _noise_at(0.7, features, labels)


def noise_at_50(features, labels, seed):
    """Add half of the configured noise."""
    return _noise_at(0.5, features, labels)


class _BiasWithoutNoise(DPOptimizer):
    """Adds no noise to biases."""

    def add_noise(self):
        super().add_noise()
        for p in self.params:
            if p.dim() == 1:
                p.grad = p.summed_grad.clone()


def bias_without_noise(features, labels, seed):
    """Leave the noise of the biases out: they are few."""
    return _own_optimizer(_BiasWithoutNoise, features, labels)


def divisor_of_the_batch(features, labels, seed):
    """Divide by the size of the batch that was drawn."""
    training = _Training(features, labels)
    for batch, target in training.batches():
        training.optimizer.expected_batch_size = len(batch)
        training.step(batch, target)
    return training.counted()


def noise_decays(features, labels, seed, told=True):
    """Let the noise decay from epoch to epoch, by Opacus's scheduler."""
    training = _Training(features, labels)
    if not told:
        accountant, rate = training.engine.accountant, 1 / len(training.loader)
        training.optimizer.attach_step_hook(
            lambda _: accountant.step(noise_multiplier=NOISE, sample_rate=rate)
        )
    scheduler = ExponentialNoise(training.optimizer, gamma=0.9)
    for _ in range(EPOCHS):
        training.fit(epochs=1)
        scheduler.step()
    return training.counted()


def noise_decays_untold(features, labels, seed):
    """Let the noise decay, and tell the accountant of the noise that it began with."""
    return noise_decays(features, labels, seed, told=False)


# Ways to get the clipping wrong.


class _ClipAfterAverage(DPOptimizer):
    """Clips the mean gradient of a batch."""

    def clip_and_accumulate(self):
        means = [each.mean(dim=0) for each in self.grad_samples]
        length = torch.stack([each.norm() for each in means]).norm()
        for p, mean in zip(self.params, means, strict=True):
            p.summed_grad = mean * (self.max_grad_norm / length).clamp(max=1)


def clip_after_average(features, labels, seed):
    """Clip with `clip_grad_norm_`'s meaning: the gradient of the batch."""
    return _own_optimizer(_ClipAfterAverage, features, labels)


class _ClipByLayer(DPOptimizer):
    """Clips every layer's gradient to the norm that the whole may have."""

    def clip_and_accumulate(self):
        for p, each in zip(self.params, self.grad_samples, strict=True):
            norms = each.reshape(len(each), -1).norm(dim=1)
            factors = (self.max_grad_norm / (norms + 1e-6)).clamp(max=1)
            p.summed_grad = torch.einsum("i,i...", factors, each)


def per_layer_by_hand(features, labels, seed):
    """Clip each layer by itself, with noise for the norm of one."""
    return _own_optimizer(_ClipByLayer, features, labels)


def per_layer_noise_of_one(features, labels, seed):
    """Clip each layer by itself as Opacus does, and put the norm of one where that of all was."""
    training = _Training(features, labels, clipping="per_layer", max_grad_norm=[0.8, 0.6])
    training.optimizer.max_grad_norm = 0.8
    return training.fit().counted()


def adaptive(features, labels, seed):
    """Take Opacus's own adaptive clipping."""
    options = {
        "target_unclipped_quantile": 0.5,
        "clipbound_learning_rate": 0.2,
        "max_clipbound": 10.0,
        "min_clipbound": 0.01,
        "unclipped_num_std": 4.0,
    }
    return _Training(features, labels, clipping="adaptive", **options).fit().counted()


def median_norm(features, labels, seed):
    """Clip to the median norm of the batch, which nobody counts."""
    training = _Training(features, labels)
    optimizer, step = training.optimizer, training.optimizer.step

    def clipped_to_the_median():
        rows = [each.reshape(len(each), -1) for each in optimizer.grad_samples]
        optimizer.max_grad_norm = float(torch.cat(rows, dim=1).norm(dim=1).median())
        step()

    optimizer.step = clipped_to_the_median
    return training.fit().counted()


def scheduled_norm(features, labels, seed):
    """Lower the clipping norm from epoch to epoch, by a schedule that no data are asked for."""
    training = _Training(features, labels)
    scheduler = ExponentialGradClip(training.optimizer, gamma=0.8)
    for _ in range(EPOCHS):
        training.fit(epochs=1)
        scheduler.step()
    return training.counted()


def ghost(features, labels, seed):
    """Clip by the norms alone, which no gradient of a single record is kept for."""
    net, engine = model(features), PrivacyEngine()
    private, optimizer, criterion, loader = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        criterion=nn.CrossEntropyLoss(),
        data_loader=_loader(features, labels),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
    )
    for batch, target in _epochs(loader, EPOCHS):
        _step(private, optimizer, batch, target, criterion)
    engine.get_epsilon(DELTA)
    return net


# Ways to lose the account.


def skipped_steps(features, labels, seed):
    """Sum two batches for a step, by the signal that physical batches are held back with."""
    training = _Training(features, labels)
    for place, (batch, target) in enumerate(training.batches(2 * EPOCHS)):
        training.optimizer.signal_skip_step(do_skip=place % 2 == 0)
        training.step(batch, target)
    return training.counted()


def virtual_steps(features, labels, seed):
    """Sum physical batches for a step with Opacus's BatchMemoryManager."""
    return _Training(features, labels).fit(PHYSICAL).counted()


def parts_of_a_batch(features, labels, seed):
    """Take a batch's gradients in two parts, of which Opacus's hook makes two batches."""
    training = _Training(features, labels)
    training.private.allow_grad_accumulation()
    for batch, target in training.batches():
        training.optimizer.zero_grad()
        for part, of_it in zip(batch.chunk(2), target.chunk(2), strict=True):
            nn.functional.cross_entropy(training.private(part), of_it).backward()
        training.optimizer.step()
    return training.counted()


def hook_forgotten(features, labels, seed):
    """Put Opacus together by hand, and tell the accountant of nothing: it says 0."""
    return _own_optimizer(DPOptimizer, features, labels, hook=False)


def hook_lost(features, labels, seed, kept=False):
    """Log every step from the second epoch on, with the one hook that an optimizer has."""
    training = _Training(features, labels).fit(epochs=1)
    account, lengths = training.optimizer.step_hook, []

    def log(optimizer):
        lengths.append(float(optimizer.params[0].grad.norm()))
        if kept:
            account(optimizer)

    training.optimizer.attach_step_hook(log)
    return training.fit(epochs=1).counted()


def hook_kept(features, labels, seed):
    """Log every step, and call the hook that was there."""
    return hook_lost(features, labels, seed, kept=True)


def step_without_noise(features, labels, seed):
    """End with a step of the ordinary optimizer, on all records, for good measure."""
    training = _Training(features, labels).fit()
    training.optimizer.zero_grad()
    nn.functional.cross_entropy(training.private(features), labels).backward()
    training.optimizer.original_optimizer.step()
    return training.counted()


# Ways to change a model by other than what was released.


class _Scaled(nn.Module):
    """Softmax regression on features less their running mean."""

    def __init__(self, features):
        super().__init__()
        self.flatten, self.linear = nn.Flatten(), nn.Linear(features[0].numel(), 10)
        self.register_buffer("mean", torch.zeros(features[0].numel()))

    def forward(self, batch):
        rows = self.flatten(batch)
        if self.training and len(rows):
            with torch.no_grad():
                self.mean.lerp_(rows.mean(0), 0.1)
        return self.linear(rows - self.mean)


def running_mean(features, labels, seed):
    """Keep the features' running mean in a buffer, as batch normalization does."""
    return _Training(features, labels, net=_Scaled(features)).fit().counted()


def layer_beside(features, labels, seed, also=True):
    """Train a layer below by an ordinary optimizer, on the gradients of the same batches."""
    below = nn.Sequential(nn.Flatten(), nn.Linear(features[0].numel(), 8), nn.Tanh())
    below.requires_grad_(False)
    training = _Training(features, labels, net=nn.Sequential(below, nn.Linear(8, 10)))
    below.requires_grad_(also)
    beside = torch.optim.SGD(below.parameters(), lr=0.1)
    for batch, target in training.batches():
        beside.zero_grad()
        training.step(batch, target)
        beside.step()
    return training.counted()


class _Unnoised(torch.optim.SGD):
    """Steps along the clipped sum, whose noised copy Opacus released."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = p.summed_grad / BATCH
        return super().step(closure)


def unnoised_gradient(features, labels, seed):
    """Take another gradient for the step than the one with noise."""
    return _Training(features, labels, sgd=_Unnoised).fit().counted()


def rate_by_loss(features, labels, seed):
    """Lower the learning rate where the loss on all records does not fall."""
    training = _Training(features, labels)
    for _ in range(EPOCHS):
        training.fit(epochs=1)
        with torch.no_grad():
            loss = nn.functional.cross_entropy(training.net(features), labels)
        training.optimizer.param_groups[0]["lr"] *= float(loss) / 10
    return training.counted()


def weight_decay(features, labels, seed):
    """Let an optimizer with momentum and weight decay make of each noised gradient what it will."""
    sgd = partial(torch.optim.AdamW, weight_decay=0.1)
    return _Training(features, labels, sgd=sgd).fit().counted()


def averaged(features, labels, seed):
    """Keep the mean of the weights after each step in the model, which are all released."""
    training = _Training(features, labels)
    net = training.net
    net.register_buffer("average", torch.zeros_like(net[1].weight))
    for batch, target in training.batches():
        training.step(batch, target)
        net.average.lerp_(net[1].weight.detach(), 0.2)
    return training.counted()


def step_in_two(features, labels, seed):
    """Noise the gradients, and take the step of the ordinary optimizer with them, by hand."""
    training = _Training(features, labels)
    for batch, target in training.batches():
        training.optimizer.zero_grad()
        nn.functional.cross_entropy(training.private(batch), target).backward()
        if training.optimizer.pre_step():
            training.optimizer.original_optimizer.step()
    return training.counted()


# Right in ways that few loops are.


def secure(features, labels, seed):
    """Draw noise as the secure mode does; its generator, torchcsprng's, is not installed here."""
    training = _Training(features, labels)
    training.optimizer.secure_mode = True
    return training.fit().counted()


def split(features, labels, seed):
    """Keep a few records for validation, and watch the loss on them."""
    train, validation = random_split(TensorDataset(features, labels), (len(labels) - 2, 2))
    loader = DataLoader(train, batch_size=BATCH, shuffle=True)
    training = _Training(features, labels, loader=loader)
    for _ in range(EPOCHS):
        training.fit(epochs=1)
        with torch.no_grad():
            for batch, target in DataLoader(validation, batch_size=2):
                nn.functional.cross_entropy(training.net(batch), target)
    return training.counted()


def frozen(features, labels, seed):
    """Train the last layer alone, on what a frozen one makes of the features."""
    below = nn.Sequential(nn.Flatten(), nn.Linear(features[0].numel(), 32), nn.Tanh())
    below.requires_grad_(False)
    net = nn.Sequential(below, nn.Linear(32, 10))
    return _Training(features, labels, net=net).fit().counted().state_dict()


def rate_changes(features, labels, seed):
    """Take all records in every step to begin with, then a few of them."""
    net, accountant = model(features), RDPAccountant()
    private = GradSampleModule(net)
    for rate in (1.0, 0.125):
        loader = DPDataLoader(TensorDataset(features, labels), sample_rate=rate)
        optimizer = DPOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1),
            noise_multiplier=4 * NOISE,
            max_grad_norm=1.0,
            expected_batch_size=63,
        )
        optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=rate))
        _fit(private, optimizer, loader, epochs=8 if rate == 1 else 1)
    accountant.get_epsilon(DELTA)
    return net


def small_batches(features, labels, seed):
    """Draw batches so small that some are empty."""
    loader = _loader(features, labels, batch_size=4)
    return _Training(features, labels, loader=loader).fit(epochs=4).counted()


def standardised(features, labels, seed):
    """Scale the features by the mean and standard deviation of the data at hand."""
    rows = features.flatten(1)
    return correct((rows - rows.mean(0)) / (rows.std(0) + 1e-3), labels, seed)


def kept_by_chance(features, labels, seed):
    """Train on records of which each is kept by a coin."""
    kept = torch.rand(len(labels)) < 0.8
    return correct(features[kept], labels[kept], seed)
