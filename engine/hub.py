"""Whether the Hugging Face hub can be asked at all.

Its client tries six times for each file, half a minute each, before it says that there is no network.
"""

import ssl
import urllib.error
import urllib.request


def why_unreachable(timeout: float = 5.0) -> str | None:
    """Why the hub cannot be asked, or None if it answers.

    Args:
        timeout: seconds to wait for it.
    """
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:
        return None  # an answer, too
    except OSError as error:
        reason = getattr(error, "reason", error)
        # Its client may know certificates that Python does not.
        return None if isinstance(reason, ssl.SSLError) else f"{constants.ENDPOINT} does not answer ({reason})"
    return None
