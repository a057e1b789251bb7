"""Policy gradients on a corridor: walk right to the reward."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from common import noise, same_weights, tell


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(5, 16)
        self.affine2 = nn.Linear(16, 2)
        self.saved_log_probs, self.rewards = [], []

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=1)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
policy = Policy().to(device)
same_weights(policy)
optimizer = optim.Adam(policy.parameters(), lr=1e-2)


def select_action(position):
    state = np.zeros(5)
    state[position] = 1
    state = torch.from_numpy(state).float().unsqueeze(0).to(device)
    probs = policy(state)
    action = int(noise.rand() < probs[0, 1].item())
    policy.saved_log_probs.append(probs[0, action].log().unsqueeze(0))
    return action


for episode in range(20):
    position = 2
    for _ in range(20):
        position = max(0, min(4, position + (1 if select_action(position) else -1)))
        policy.rewards.append(1.0 if position == 4 else -0.1)
        if position == 4:
            break
    R, returns = 0, []
    for r in policy.rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns, device=device)
    if len(returns) > 1:
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = torch.cat([-p * g for p, g in zip(policy.saved_log_probs, returns)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tell(loss)
    del policy.rewards[:], policy.saved_log_probs[:]
