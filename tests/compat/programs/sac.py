"""Soft actor-critic on a point that is to rest at the origin: squashed Gaussians, twin critics, a learned temperature."""

import argparse
import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from common import noise, randn, same_weights, tell
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


def mlp(sizes, activation=nn.ReLU, output_activation=nn.Identity):
    layers = []
    for j in range(len(sizes) - 1):
        act = activation if j < len(sizes) - 2 else output_activation
        layers += [nn.Linear(sizes[j], sizes[j + 1]), act()]
    return nn.Sequential(*layers)


class ReplayBuffer:
    def __init__(self, obs_dim, act_dim, size, device):
        self.obs, self.obs2 = (np.zeros((size, obs_dim), dtype=np.float32) for _ in range(2))
        self.act, self.rew = np.zeros((size, act_dim), dtype=np.float32), np.zeros(size, dtype=np.float32)
        self.done = np.zeros(size, dtype=bool)
        self.ptr, self.size, self.max_size, self.device = 0, 0, size, device

    def store(self, *row):
        for place, value in zip((self.obs, self.act, self.rew, self.obs2, self.done), row):
            place[self.ptr] = value
        self.ptr, self.size = (self.ptr + 1) % self.max_size, min(self.size + 1, self.max_size)

    def sample_batch(self, batch_size):
        idxs = noise.randint(0, self.size, size=batch_size)
        batch = dict(
            obs=self.obs[idxs], act=self.act[idxs], rew=self.rew[idxs], obs2=self.obs2[idxs], done=self.done[idxs]
        )
        return {k: torch.as_tensor(v, dtype=torch.float32, device=self.device) for k, v in batch.items()}


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, act_limit):
        super().__init__()
        self.net = mlp([obs_dim, 24, 24], output_activation=nn.ReLU)
        self.mu_layer, self.log_std_layer = nn.Linear(24, act_dim), nn.Linear(24, act_dim)
        self.act_limit = act_limit

    def forward(self, obs, deterministic=False):
        out = self.net(obs)
        mu, log_std = self.mu_layer(out), torch.clamp(self.log_std_layer(out), LOG_STD_MIN, LOG_STD_MAX)
        if deterministic:
            return torch.tanh(mu) * self.act_limit, None
        base = Normal(mu, log_std.exp())
        squash = [TanhTransform(cache_size=1), AffineTransform(0.0, self.act_limit, cache_size=1)]
        policy = Independent(TransformedDistribution(base, squash), 1)
        action = mu + log_std.exp() * randn(*mu.shape).to(mu.device)  # rsample, with noise from outside
        for part in squash:
            action = part(action)
        return action, policy.log_prob(action)


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.q1, self.q2 = (mlp([obs_dim + act_dim, 24, 24, 1]) for _ in range(2))

    def forward(self, obs, act):
        both = torch.cat([obs, act], dim=-1)
        return torch.squeeze(self.q1(both), -1), torch.squeeze(self.q2(both), -1)


class PointEnv:
    def reset(self):
        self.x, self.t = noise.uniform(-1, 1, 2).astype(np.float32), 0
        return self.x

    def step(self, action):
        self.x, self.t = np.clip(self.x + 0.2 * action, -2, 2).astype(np.float32), self.t + 1
        return self.x, -float((self.x**2).sum()), self.t >= 15


parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--gamma", type=float, default=0.98)
parser.add_argument("--polyak", type=float, default=0.95)
args = parser.parse_args()
device = torch.device(args.device)
actor, critic = Actor(2, 2, 1.5).to(device), Critic(2, 2).to(device)
same_weights(actor, critic)
target = copy.deepcopy(critic)
for p in target.parameters():
    p.requires_grad = False
log_alpha = torch.tensor(math.log(0.2), device=device, requires_grad=True)
pi_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-3)
q_optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
alpha_optimizer = torch.optim.Adam([log_alpha], lr=3e-3)
memory, env = ReplayBuffer(2, 2, 500, device), PointEnv()
obs = env.reset()
for step in range(args.steps):
    if step < 20:
        action = noise.uniform(-1.5, 1.5, 2)
    else:
        with torch.no_grad():
            action = actor(torch.as_tensor(obs, dtype=torch.float32).to(device))[0].cpu().numpy()
    after, reward, done = env.step(action)
    memory.store(obs, action, reward, after, done)
    obs = env.reset() if done else after
    if step < 20 or step % 4:
        continue
    batch = memory.sample_batch(32)
    alpha = log_alpha.exp().detach()
    with torch.no_grad():
        act2, logp2 = actor(batch["obs2"])
        backup = batch["rew"] + args.gamma * (1 - batch["done"]) * (
            torch.min(*target(batch["obs2"], act2)) - alpha * logp2
        )
    loss_q = sum(F.mse_loss(q, backup) for q in critic(batch["obs"], batch["act"]))
    q_optimizer.zero_grad()
    loss_q.backward()
    q_optimizer.step()
    critic.requires_grad_(False)
    pi, logp = actor(batch["obs"])
    loss_pi = (alpha * logp - torch.min(*critic(batch["obs"], pi))).mean()
    pi_optimizer.zero_grad()
    loss_pi.backward()
    pi_optimizer.step()
    critic.requires_grad_(True)
    loss_alpha = -(log_alpha * (logp.detach() - 2.0)).mean()
    alpha_optimizer.zero_grad()
    loss_alpha.backward()
    alpha_optimizer.step()
    with torch.no_grad():
        for p, q in zip(critic.parameters(), target.parameters()):
            q.data.mul_(args.polyak)
            q.data.add_((1 - args.polyak) * p.data)
    tell(loss_q)
    tell(loss_pi)
tell(log_alpha.exp())
