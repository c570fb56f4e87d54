/** How much may be in flight at once, by count and bytes, shared by all partitions of a pipeline. */

export interface BudgetLimits {
  readonly maxInFlight: number
  readonly maxInFlightBytes: number
}

/**
 * The pipeline's in-flight budget. Each account (one per partition that reads) keeps a small reserve of its own, so
 * that none starves; the rest goes to whoever has work, first come, first served.
 *
 * The count is a hard limit. The byte limit lets an account with nothing in flight take one record of any size, which
 * its reader holds in memory anyway; otherwise a record larger than the limit could never pass.
 */
export class InFlightBudget {
  readonly #limits: BudgetLimits
  readonly #accounts = new Set<BudgetAccount>()
  #count = 0
  #bytes = 0
  #reserve = 0
  #waiters: Waiter[] = []

  constructor(limits: BudgetLimits) {
    this.#limits = limits
  }

  get count(): number {
    return this.#count
  }

  get bytes(): number {
    return this.#bytes
  }

  get limits(): BudgetLimits {
    return this.#limits
  }

  open(): BudgetAccount {
    const account = new BudgetAccount(this)
    this.#accounts.add(account)
    this.#shareReserve()
    return account
  }

  /** @internal */
  closeAccount(account: BudgetAccount): void {
    if (!this.#accounts.delete(account)) return
    this.#count -= account.count
    this.#bytes -= account.bytes
    this.#shareReserve()
    this.#serveWaiters()
  }

  /** @internal */
  tryTake(account: BudgetAccount, bytes: number): boolean {
    // Whoever waits was first: nobody overtakes, except within an own reserve that is kept for just that.
    if (account.count >= this.#reserve && this.#waiters.length > 0) return false
    return this.#takeIfRoom(account, bytes)
  }

  /** @internal */
  wait(account: BudgetAccount, bytes: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason)
      const waiter: Waiter = {
        account,
        bytes,
        served: () => {
          signal.removeEventListener('abort', giveUp)
          resolve()
        },
      }
      const giveUp = (): void => {
        this.#waiters = this.#waiters.filter((other) => other !== waiter)
        reject(signal.reason)
        this.#serveWaiters()
      }
      signal.addEventListener('abort', giveUp, { once: true })
      this.#waiters.push(waiter)
    })
  }

  /** @internal */
  give(account: BudgetAccount, bytes: number): void {
    if (!this.#accounts.has(account)) return
    account.count--
    account.bytes -= bytes
    this.#count--
    this.#bytes -= bytes
    if (this.#waiters.length > 0) this.#serveWaiters()
  }

  #takeIfRoom(account: BudgetAccount, bytes: number): boolean {
    const { maxInFlight, maxInFlightBytes } = this.#limits
    if (this.#count >= maxInFlight) return false
    if (account.count > 0 && this.#bytes + bytes > maxInFlightBytes) return false
    const isWithinReserve = account.count < this.#reserve
    if (!isWithinReserve && this.#count + this.#unusedReserveOfOthers(account) >= maxInFlight) return false
    account.count++
    account.bytes += bytes
    this.#count++
    this.#bytes += bytes
    return true
  }

  #unusedReserveOfOthers(account: BudgetAccount): number {
    if (this.#reserve === 0 || this.#count + this.#accounts.size * this.#reserve < this.#limits.maxInFlight) return 0
    let unused = 0
    for (const other of this.#accounts) if (other !== account) unused += Math.max(0, this.#reserve - other.count)
    return unused
  }

  #serveWaiters(): void {
    // First come, first served, but a waiter that cannot be served now does not block those behind it that can.
    const still: Waiter[] = []
    for (const waiter of this.#waiters) {
      if (this.#takeIfRoom(waiter.account, waiter.bytes)) waiter.served()
      else still.push(waiter)
    }
    this.#waiters = still
  }

  /** A quarter of the budget is kept in reserve, in equal shares. */
  #shareReserve(): void {
    this.#reserve = this.#accounts.size < 2 ? 0 : Math.floor(this.#limits.maxInFlight / (4 * this.#accounts.size))
  }
}

interface Waiter {
  readonly account: BudgetAccount
  readonly bytes: number
  readonly served: () => void
}

/** One partition's part of the budget. */
export class BudgetAccount {
  readonly #budget: InFlightBudget
  /** What this account has in flight. */
  count = 0
  bytes = 0

  constructor(budget: InFlightBudget) {
    this.#budget = budget
  }

  /** Takes room at once, or says that there is none: then `take` waits for it. */
  tryTake(bytes: number): boolean {
    return this.#budget.tryTake(this, bytes)
  }

  /** Takes room, waiting for it if need be; an abort ends the wait with the signal's reason. */
  async take(bytes: number, signal: AbortSignal): Promise<void> {
    if (!this.tryTake(bytes)) await this.#budget.wait(this, bytes, signal)
  }

  give(bytes: number): void {
    this.#budget.give(this, bytes)
  }

  /** Gives everything back; what is settled later changes nothing. */
  close(): void {
    this.#budget.closeAccount(this)
  }
}
