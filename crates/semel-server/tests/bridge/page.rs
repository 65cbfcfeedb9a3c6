//! What stands in `docs/bridge.md` is so.
