"""The two kinds of model by their names; nowhere else are these compared."""

FLEXMDM, MDM = MODELS = "flexmdm", "mdm"
TITLES = {FLEXMDM: "FlexMDM", MDM: "MDM"}


def inserts(model: str) -> bool:
    """Return whether a kind of model, by its name, inserts tokens; an unknown name is an error.

    >>> inserts("flexmdm"), inserts("mdm")
    (True, False)
    """
    if model not in MODELS:
        raise ValueError(f"the model is {FLEXMDM} or {MDM}, got {model!r}")
    return model == FLEXMDM
