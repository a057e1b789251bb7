"""A network learns to balance a pole on a cart by trial and error: the policy gradient of Williams (1992).

    python examples/reinforce.py --epochs 60

The cart is simulated here, 32 of them at once, with the equations of Barto, Sutton and Anderson (1983). A trial ends
when the pole leans over 12 degrees or the cart leaves its track, and after 200 steps.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import tesserack as ts
from common import finish, parse_arguments
from tesserack import nn, optim
from tesserack.distributions import Categorical
from tesserack.utils.progress import Progress

CARTS, STEPS = 32, 200


class CartPoles:
    """Carts of 1 kg with poles of 0.1 kg and 1 m, pushed by 10 N left or right fifty times a second."""

    def __init__(self, device: Any) -> None:
        self.state = ts.rand(CARTS, 4, device=device) * 0.1 - 0.05  # place, speed, angle, its speed
        self.up = ts.ones(CARTS, dtype=ts.bool, device=device)

    def step(self, push_right: ts.Tensor) -> ts.Tensor:
        """Push; the reward is 1 for every pole that was still up."""
        reward = self.up.float()
        _, v, angle, turning = self.state.unbind(1)
        force = push_right.float() * 20 - 10
        pull = (force + 0.05 * turning.square() * angle.sin()) / 1.1
        swing = (9.8 * angle.sin() - angle.cos() * pull) / (0.5 * (4 / 3 - 0.1 * angle.cos().square() / 1.1))
        acceleration = pull - 0.05 * swing * angle.cos() / 1.1
        rates = ts.stack((v, acceleration, turning, swing), 1)
        self.state = self.state + 0.02 * rates
        self.up = self.up & (self.state[:, 0].abs() < 2.4) & (self.state[:, 2].abs() < math.radians(12))
        return reward


def play(policy: nn.Module, device: Any) -> tuple[ts.Tensor, ts.Tensor]:
    """One trial of every cart: log-probabilities of what was done, and rewards, both (steps, carts)."""
    carts, chances, rewards = CartPoles(device), [], []
    for _ in range(STEPS):
        choice = Categorical(logits=policy(carts.state.clamp(-5, 5)))
        action = choice.sample()
        chances.append(choice.log_prob(action))
        rewards.append(carts.step(action))
        if not carts.up.any():
            break
    return ts.stack(chances), ts.stack(rewards)


def loss_of(chances: ts.Tensor, rewards: ts.Tensor) -> ts.Tensor:
    """Makes likelier what was followed by more reward than usual at that step."""
    returns = [rewards[-1]]
    for reward in reversed(rewards[:-1].unbind(0)):
        returns.append(reward + 0.99 * returns[-1])
    total = ts.stack(returns[::-1])
    alive = rewards.sum(1, keepdim=True).clamp(min=1)
    usual = (total * rewards).sum(1, keepdim=True) / alive
    advantage = (total - usual) * rewards
    spread = (advantage.square().sum() / rewards.sum()).sqrt() + 1e-6
    return -(chances * advantage / spread).sum() / rewards.sum()


def main() -> int:
    args = parse_arguments("Learn to balance a pole.", epochs=60, quick=3)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to(args.device)
    optimizer = optim.Adam(policy.parameters(), lr=2e-2)
    history: dict[str, list[float]] = {"steps balanced": []}
    with Progress(args.epochs, unit="trials") as bar:
        for _ in range(args.epochs):
            chances, rewards = play(policy, args.device)
            loss = loss_of(chances, rewards)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history["steps balanced"].append(rewards.sum(0).mean().item())
            bar.advance(steps=history["steps balanced"][-1])
    first, last = history["steps balanced"][0], history["steps balanced"][-1]
    print(f"balanced for {first:.0f} steps at first, {last:.0f} of {STEPS} at the end")
    finish("reinforce", args, policy, history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
