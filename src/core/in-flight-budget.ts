/** How much may be in flight at once, by count and bytes, shared by all partitions of a pipeline. */
import { ClosedError } from './errors.ts'

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
  /** What all accounts together have not taken of their reserves: kept up to date, as thousands may be waiting. */
  #unusedReserve = 0
  readonly #waiters = new Set<Waiter>()

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
    this.#serveWaiters()
    return account
  }

  /** @internal */
  closeAccount(account: BudgetAccount): void {
    if (!this.#accounts.delete(account)) return
    account.isOpen = false
    this.#count -= account.count
    this.#bytes -= account.bytes
    for (const waiter of this.#waiters) if (waiter.account === account) waiter.refused(accountClosed())
    this.#shareReserve()
    this.#serveWaiters()
  }

  /** @internal */
  tryTake(account: BudgetAccount, bytes: number): boolean {
    if (!account.isOpen) return false
    // Whoever waits was first: nobody overtakes, except within an own reserve that is kept for just that, and with
    // nothing in flight: those who wait may wait for what this account has to bring.
    if (this.#waiters.size > 0 && account.count >= Math.max(1, this.#reserve)) return false
    return this.#takeIfRoom(account, bytes)
  }

  /** @internal */
  wait(account: BudgetAccount, bytes: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason)
      if (!account.isOpen) return reject(accountClosed())
      const leave = (): void => {
        this.#waiters.delete(waiter)
        signal.removeEventListener('abort', giveUp)
      }
      const waiter: Waiter = {
        account,
        bytes,
        served: () => {
          leave()
          resolve()
        },
        refused: (error) => {
          leave()
          reject(error)
        },
      }
      const giveUp = (): void => waiter.refused(signal.reason)
      signal.addEventListener('abort', giveUp, { once: true })
      this.#waiters.add(waiter)
    })
  }

  /** @internal */
  give(account: BudgetAccount, bytes: number): void {
    if (!account.isOpen) return
    account.count--
    account.bytes -= bytes
    this.#count--
    this.#bytes -= bytes
    if (account.count < this.#reserve) this.#unusedReserve++
    if (this.#waiters.size > 0) this.#serveWaiters()
  }

  #takeIfRoom(account: BudgetAccount, bytes: number): boolean {
    const { maxInFlight, maxInFlightBytes } = this.#limits
    if (this.#count >= maxInFlight) return false
    if (account.count > 0 && this.#bytes + bytes > maxInFlightBytes) return false
    const isWithinReserve = account.count < this.#reserve
    if (!isWithinReserve && this.#count + this.#unusedReserve >= maxInFlight) return false
    if (isWithinReserve) this.#unusedReserve--
    account.count++
    account.bytes += bytes
    this.#count++
    this.#bytes += bytes
    return true
  }

  #serveWaiters(): void {
    // First come, first served, but a waiter that cannot be served now does not block those behind it that can.
    for (const waiter of this.#waiters) {
      if (this.#count >= this.#limits.maxInFlight) return
      if (this.#takeIfRoom(waiter.account, waiter.bytes)) waiter.served()
    }
  }

  /** A quarter of the budget is kept in reserve, in equal shares. */
  #shareReserve(): void {
    this.#reserve = this.#accounts.size < 2 ? 0 : Math.floor(this.#limits.maxInFlight / (4 * this.#accounts.size))
    this.#unusedReserve = 0
    for (const { count } of this.#accounts) this.#unusedReserve += Math.max(0, this.#reserve - count)
  }
}

interface Waiter {
  readonly account: BudgetAccount
  readonly bytes: number
  readonly served: () => void
  readonly refused: (error: unknown) => void
}

function accountClosed(): ClosedError {
  return new ClosedError('in-flight budget: the account is closed')
}

/** One partition's part of the budget. */
export class BudgetAccount {
  readonly #budget: InFlightBudget
  isOpen = true
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

  /**
   * Takes room, waiting for it if need be; an abort ends the wait with the signal's reason, a close with a ClosedError.
   */
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
