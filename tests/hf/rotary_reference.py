"""Keys turned back by their angles, in float64: what the kernel and torch must agree with."""

import torch


def turned(keys, angles):
    """(..., D) keys and (..., R / 2) angles."""
    half = angles.shape[-1]
    first, second, rest = keys.double().split((half, half, keys.shape[-1] - 2 * half), -1)
    cos, sin = angles.double().cos(), angles.double().sin()
    return torch.cat((first * cos + second * sin, second * cos - first * sin, rest), -1)
