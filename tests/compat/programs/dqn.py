"""Deep Q-learning on a corridor, with replay memory and a target network."""

import random
from collections import deque, namedtuple
from copy import deepcopy

import torch
from common import noise, same_weights, tell
from torch import nn

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward", "done"))
random.seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
policy = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2)).to(device)
same_weights(policy)
target = deepcopy(policy)
memory = deque(maxlen=200)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)


def one_hot(position):
    return torch.eye(6, device=device)[position]


position = 0
for step in range(60):
    with torch.no_grad():
        greedy = policy(one_hot(position).unsqueeze(0)).max(1).indices.item()
    action = int(noise.randint(2)) if noise.rand() < 0.5 else greedy
    after = max(0, min(5, position + (1 if action else -1)))
    memory.append(Transition(one_hot(position), action, one_hot(after), float(after == 5), after == 5))
    position = 0 if after == 5 else after
    if len(memory) < 16:
        continue
    batch = Transition(*zip(*random.sample(memory, 16)))
    states, following = torch.stack(batch.state), torch.stack(batch.next_state)
    q = policy(states).gather(1, torch.tensor(batch.action, device=device).unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = target(following).max(1).values * ~torch.tensor(batch.done, device=device)
    loss = nn.SmoothL1Loss()(q, best * 0.9 + torch.tensor(batch.reward, device=device))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    for old, new in zip(target.parameters(), policy.parameters()):
        old.data.mul_(0.95).add_(new.data, alpha=0.05)
    if step % 8 == 0:
        tell(loss)
