"""Proximal policy optimisation on a small pole of our own: distributions, advantages, clipped ratios."""

import argparse

import torch
import torch.nn as nn
from common import noise, same_weights, tell
from torch.distributions import Categorical, Normal, kl_divergence
from torch.nn.utils import clip_grad_value_, parameters_to_vector


class Pole:
    def __init__(self, device):
        self.device = device

    def reset(self):
        self.state = torch.Tensor([0.05, 0.0]).to(self.device)
        return self.state

    def step(self, action):
        angle, speed = self.state
        speed = speed + 0.05 * (9.8 * torch.sin(angle) + (4.0 if action == 1 else -4.0))
        angle = angle + 0.05 * speed
        self.state = torch.stack([angle, speed])
        done = bool(angle.abs() > 0.5)
        return self.state, 0.0 if done else 1.0, done


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        self.critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight, 2**0.5)
                nn.init.constant_(layer.bias, 0)

    def forward(self, state):
        return Categorical(logits=self.actor(state)), self.critic(state).squeeze(-1)


def pick(policy):
    """By inversion, from numbers that do not depend on the library."""
    return int((policy.probs.cumsum(-1) < noise.rand()).sum().clamp(max=1))


parser = argparse.ArgumentParser()
parser.add_argument("--cuda", type=lambda text: text.lower() == "true", default=True, nargs="?", const=True)
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")
torch.backends.cudnn.deterministic = True
net = ActorCritic().to(device)
same_weights(net)
old = ActorCritic().to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, eps=1e-5)
env = Pole(device)
for update in range(4):
    old.load_state_dict(net.state_dict())
    states, actions, rewards, values, dones = [], [], [], [], []
    state = env.reset()
    with torch.no_grad():
        for _ in range(48):
            policy, value = old(state)
            action = pick(policy)
            states.append(state)
            actions.append(action)
            values.append(value)
            state, reward, done = env.step(action)
            rewards.append(reward)
            dones.append(done)
            if done:
                state = env.reset()
        states, actions, values = torch.stack(states), torch.tensor(actions).to(device), torch.stack(values)
        last = old(state)[1]
        advantages, running = torch.zeros(48).to(device), 0.0
        for k in reversed(range(48)):
            following = last if k == 47 else values[k + 1]
            delta = rewards[k] + 0.99 * following * (not dones[k]) - values[k]
            running = delta + 0.99 * 0.95 * (not dones[k]) * running
            advantages[k] = running
        returns = advantages + values
        before, _ = old(states)
        log_before = before.log_prob(actions)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(3):
        policy, value = net(states)
        ratio = (policy.log_prob(actions) - log_before).exp()
        surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        loss = -surrogate + 0.5 * (value - returns).pow(2).mean() - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        clip_grad_value_(net.parameters(), 0.5)
        optimizer.step()
        tell(loss)
    tell(kl_divergence(before, net(states)[0]).mean())
tell(parameters_to_vector(net.parameters()).norm())
tell(Normal(returns.mean(), returns.std()).cdf(returns.max()))
