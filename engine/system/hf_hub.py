"""Checks whether the Hugging Face Hub can be reached.

Without a network, the hub's client retries each file six times with a timeout of half a minute. One request beforehand
avoids that.
"""

import ssl
import urllib.error
import urllib.request


def hub_unreachable_reason(timeout: float = 5.0) -> str | None:
    """Return why the hub cannot be reached, or None if it responds.

    Args:
        timeout: seconds to wait for a response.
    """
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:
        return None  # an error status is a response too
    except OSError as error:
        reason = getattr(error, "reason", error)
        # The client may have certificates that Python's ssl module lacks.
        return None if isinstance(reason, ssl.SSLError) else f"{constants.ENDPOINT} does not answer ({reason})"
    return None
