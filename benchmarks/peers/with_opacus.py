"""Opacus: DP-SGD on a linear model, its own Poisson loader and its own PRV noise."""

import argparse
import warnings

import protocol
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
LEARNING_RATE = 4.0


class Rows(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]

    def __getitems__(self, indices):
        """One batch at once; only saves time."""
        return [(self.x[indices], self.y[indices])]


def fit(data, X, y, epsilon, seed):
    torch.manual_seed(seed)
    rows = Rows(torch.tensor(X.toarray(), dtype=torch.float32), torch.tensor(y, dtype=torch.float32))
    model = torch.nn.Linear(X.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loader = DataLoader(rows, batch_size=protocol.batch_size(data), collate_fn=lambda batch: batch[0])
    model, optimizer, loader = PrivacyEngine(accountant="prv").make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=protocol.DELTA,
        epochs=protocol.EPOCHS,
        max_grad_norm=1.0,
    )
    steps = protocol.EPOCHS * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 - t / steps)
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(protocol.EPOCHS):
        for x, target in loader:
            optimizer.zero_grad()
            loss(model(x).squeeze(1), target).backward()
            optimizer.step()
            schedule.step()
    return model._module.weight.detach().numpy()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", default=["adult", "diab30", "diabany", "stroke"])
    torch.set_num_threads(1)
    protocol.run(
        "Opacus DP-SGD",
        parser.parse_args().data,
        ["opacus", "torch", "numpy"],
        "SGD, learning rate 4 falling linearly to 0, Poisson batches of 1,024 (stroke 256) on average, 20 epochs, "
        "clip 1, PRV accountant, last iterate; add/remove",
        fit,
    )
