/** How many rows the Spanner store puts into one commit: Spanner takes 80,000 changed cells, and few are faster. */

/** Five cells of a row change at once; long before the limit a commit becomes slow. */
export const PAGE_ROWS = 4_000

/** Of children that are inserted, or rows that are reopened. */
export const PART_ROWS = 1_000

/** Five cells each, its key among them. */
export const MAX_WRITES = 15_000

/** A new row with its index has 14 cells. */
export const MAX_GROUP_ROWS = 3_000
