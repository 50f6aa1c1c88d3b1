"""Why a result is what it is: of a model that ranks, and of a model that grades."""
