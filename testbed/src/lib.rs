//! Development only: real servers on private ports with throw-away data, and a TCP proxy that injects faults.
