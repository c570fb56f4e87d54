/** The heartbeat by which a reader asks the benchmark's server to stay open behind the last record, and to beat. */
export const HOLD_MS = 2_000
