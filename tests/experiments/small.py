"""The experiments at a size that takes seconds."""

from dataclasses import replace

from experiments import EXPERIMENTS, Recipe, SentimentConfig, TextConfig

RECIPE = Recipe(hidden_channels=32, num_steps=40, lr=1e-2, batch_size=200)

SENTIMENT = SentimentConfig(
    recipe=RECIPE,
    taus=(2.5, 2.8, 4.0),
    lams=(0.1, 1.0),
    lipschitz=(1.0, 2.25),
    chosen_lipschitz=2.25,
    penalties=(0.01,),
    chosen_penalty=0.01,
    rhos=(1.0,),
    chosen_rho=1.0,
    auditor_steps=1,
    num_side=50,
    fair_batch_size=100,
)


def text_config(dataset: str, **options: object) -> TextConfig:
    """A tenth of the texts, one value of everything."""
    config = EXPERIMENTS[dataset].config
    return replace(
        config,
        options=options,
        recipe=RECIPE,
        num_factors=5,
        taus=config.taus[2:4],
        lams=(config.curve_lam,),
        weights=(0.3, 1.0),
        penalties=(0.01,),
        rhos=(1.0,),
        auditor_steps=1,
        num_unlabelled=50,
        shares=(0.1, 1.0),
    )
