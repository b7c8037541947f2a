"""Which membership attacks a run can play."""

from adversaries.attacks import membership_attacks
from adversaries.errors import InputError

CANNOT = {
    "members": "which compares a record with all others of its model; every run reports it as "
    "'yeom'",
    "records": "whose variance needs several records, but a run attacks only one",
}
"""Why a run cannot play attacks with these needs."""


def check(attacks: str) -> None:
    """Raise InputError for `audit.attacks` that a run cannot play; "all" leaves them out."""
    listed = membership_attacks.chosen(attacks)
    if attacks.strip() == "all":
        return
    for name, attack in listed.items():
        for need, why in CANNOT.items():
            if need in attack.needs:
                raise InputError(
                    f"audit.attacks has '{name}', {why}; drop it here, or play fedsim membership"
                )
