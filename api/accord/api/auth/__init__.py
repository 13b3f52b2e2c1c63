"""Who may do what: bearer tokens from a file of hashes, and one table of routes and least roles.

`Auth` is made with the application; `protect` puts it before every route. Routes find who calls in
`request.state.principal`, or take `CurrentPrincipal` as a parameter, and need not know the rest.
"""

from .auth import Auth
from .guard import CurrentPrincipal, protect
from .roles import Principal, Role
from .tokens import TokenFileError

__all__ = ["Auth", "CurrentPrincipal", "Principal", "Role", "TokenFileError", "protect"]
