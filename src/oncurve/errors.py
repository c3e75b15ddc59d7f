"""One root for the errors that a user can cause and mend. Each says what, where, what is allowed and how to mend it."""


class OncurveError(Exception):
    """Bad input or a bad place to write to. The command line prints it without a traceback and exits with `status`."""

    status = 2


class ConfigError(OncurveError, ValueError):
    """One or more faults in a configuration, each with its place."""


class DataError(OncurveError, ValueError):
    """A data set, image or answer file that can't be used."""


class ModelError(OncurveError, ValueError):
    """A model that can't be loaded, or that can't do what was asked of it."""


class RunError(OncurveError, OSError):
    """A run folder that is missing, taken, damaged or can't be written to."""


class MixedGroupError(OncurveError, ValueError):
    """Answers that differ in what a group must share."""


class BrokenReward(OncurveError, ValueError):
    """A reward that an audit has won without doing the task."""


class BrokenTruth(OncurveError, ValueError):
    """A task whose truth can't be right: it does not parse, or does not do what a right answer must."""


class SandboxError(OncurveError, RuntimeError):
    """Code that would run with less isolation than asked for, or a sandbox that can't start a child."""


class RunStopped(OncurveError):
    """A run that its own health rules ended, as the configuration asked."""

    status = 3
