"""What every section of a configuration is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Momentum = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    """Frozen; unknown keys, numbers as text and what is not finite are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
