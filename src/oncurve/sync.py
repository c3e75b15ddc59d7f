"""New weights into the sampler."""


def sync(policy, num_updates: int) -> None:
    """Count the policy's version on. The local sampler reads the trainer's own weights, so nothing is copied."""
    policy.version += num_updates
