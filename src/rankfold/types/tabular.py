"""Results that are also tables: polars, pandas and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankfold.errors import require

if TYPE_CHECKING:
    import polars as pl


class Tabular:
    """A result that is also a table. A subclass defines ``to_polars``."""

    __slots__ = ()

    def to_polars(self) -> pl.DataFrame:
        """The result as a polars table."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return str(self.to_polars()._repr_html_())

    def to_pandas(self) -> Any:
        """The same as a pandas table."""
        pandas = require("pandas", "`to_pandas`")
        return pandas.DataFrame({one.name: one.to_numpy() for one in self.to_polars()})

    def to_arrow(self) -> Any:
        """The same as an Arrow table."""
        require("pyarrow", "`to_arrow`")
        return self.to_polars().to_arrow()
