"""Finds out whether the Hugging Face hub can be reached, because its own retries take a minute."""

from __future__ import annotations

import time
from pathlib import Path

from huggingface_hub import constants
from huggingface_hub.utils import get_session

_PAUSES = (0.5, 1.0)  # seconds between attempts
_TIMEOUT = 10.0  # seconds, as in the hub's library


def notice_offline(location: str) -> None:
    """Go offline, as with HF_HUB_OFFLINE=1, when no connection to the hub can be made.

    location: a folder, which needs no hub, or a hub name. On a slow network the hub's own timeouts
    apply.
    """
    if Path(location).is_dir() or constants.HF_HUB_OFFLINE:
        return
    for pause in (*_PAUSES, None):
        try:
            get_session().head(constants.ENDPOINT, timeout=_TIMEOUT)
            return
        except Exception as error:  # the HTTP library, and so its errors, differ by version
            if type(error).__name__ != "ConnectError":
                return
        if pause is not None:
            time.sleep(pause)
    constants.HF_HUB_OFFLINE = True
