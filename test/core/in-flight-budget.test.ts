import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ClosedError } from '../../src/core/errors.ts'
import { type BudgetAccount, InFlightBudget } from '../../src/core/in-flight-budget.ts'
import { settled } from '../support/recording-clock.ts'

const never = new AbortController().signal

function fill(account: BudgetAccount, bytes = 1): number {
  let taken = 0
  while (account.tryTake(bytes)) taken++
  return taken
}

/** Notes when a take is served. */
function taking(
  account: BudgetAccount,
  bytes = 1,
  signal: AbortSignal = never,
): { isServed: boolean; done: Promise<void> } {
  const take = { isServed: false, done: Promise.resolve() }
  take.done = account.take(bytes, signal).then(() => {
    take.isServed = true
  })
  return take
}

describe('InFlightBudget', () => {
  test('P7: gives out no more than the count', () => {
    const budget = new InFlightBudget({ maxInFlight: 5, maxInFlightBytes: 1000 })
    const account = budget.open()
    expect(fill(account)).toBe(5)
    expect({ count: budget.count, bytes: budget.bytes }).toEqual({ count: 5, bytes: 5 })
    account.give(1)
    expect(fill(account)).toBe(1)
  })

  test('P7: gives out no more than the bytes, except one record of any size to who has nothing', () => {
    const budget = new InFlightBudget({ maxInFlight: 10, maxInFlightBytes: 100 })
    const account = budget.open()
    expect(account.tryTake(500)).toBe(true)
    expect(account.tryTake(0)).toBe(false)
    account.give(500)
    expect(account.tryTake(60)).toBe(true)
    expect(account.tryTake(41)).toBe(false)
    expect(account.tryTake(40)).toBe(true)
    expect(budget.bytes).toBe(100)
  })

  test('P7: keeps a reserve for every account, so that none starves', () => {
    const budget = new InFlightBudget({ maxInFlight: 80, maxInFlightBytes: 1000 })
    const [greedy, modest] = [budget.open(), budget.open()]
    expect(fill(greedy)).toBe(70)
    expect(fill(modest)).toBe(10)
    expect(budget.count).toBe(80)
  })

  test('has no reserve for a single account, and gives it back when others close', () => {
    const budget = new InFlightBudget({ maxInFlight: 80, maxInFlightBytes: 1000 })
    const account = budget.open()
    const other = budget.open()
    expect(fill(account)).toBe(70)
    other.close()
    expect(fill(account)).toBe(10)
  })

  test('serves those who wait in the order in which they came', async () => {
    const budget = new InFlightBudget({ maxInFlight: 2, maxInFlightBytes: 1000 })
    const account = budget.open()
    fill(account)
    const waiting = [taking(account), taking(account), taking(account)]
    account.give(1)
    await settled()
    expect(waiting.map(({ isServed }) => isServed)).toEqual([true, false, false])
    expect(account.tryTake(1)).toBe(false)
    account.give(1)
    await settled()
    expect(waiting.map(({ isServed }) => isServed)).toEqual([true, true, false])
    account.give(1)
    await Promise.all(waiting.map(({ done }) => done))
    expect(budget.count).toBe(2)
  })

  test('nobody overtakes those who wait, but who has nothing in flight is not held up by them', async () => {
    const budget = new InFlightBudget({ maxInFlight: 5, maxInFlightBytes: 100 })
    const [large, small, idle] = [budget.open(), budget.open(), budget.open()]
    expect([large.tryTake(80), small.tryTake(1)]).toEqual([true, true])
    const waiting = taking(large, 50)
    expect(small.tryTake(1)).toBe(false)
    expect(idle.tryTake(1)).toBe(true)
    large.give(80)
    await waiting.done
    expect(budget.bytes).toBe(52)
  })

  test('a waiter that cannot be served does not block those behind it that can', async () => {
    const budget = new InFlightBudget({ maxInFlight: 5, maxInFlightBytes: 100 })
    const [large, small] = [budget.open(), budget.open()]
    expect([large.tryTake(50), large.tryTake(25), small.tryTake(20)]).toEqual([true, true, true])
    const waiting = [taking(large, 90), taking(small, 30)]
    large.give(25)
    await settled()
    expect(waiting.map(({ isServed }) => isServed)).toEqual([false, true])
    large.give(50)
    await settled()
    expect(waiting.map(({ isServed }) => isServed)).toEqual([true, true])
  })

  test('a new account changes the shares and may make room for who waits', async () => {
    const budget = new InFlightBudget({ maxInFlight: 8, maxInFlightBytes: 1000 })
    const [first] = [budget.open(), budget.open()]
    expect(fill(first)).toBe(7)
    const waiting = taking(first)
    budget.open() // eight are shared by three now: no reserve is left
    await waiting.done
    expect(budget.count).toBe(8)
  })

  test('an abort ends the wait with its reason and leaves nothing behind', async () => {
    const budget = new InFlightBudget({ maxInFlight: 1, maxInFlightBytes: 1000 })
    const account = budget.open()
    fill(account)
    const controller = new AbortController()
    const reason = new Error('enough')
    const waiting = account.take(1, controller.signal)
    controller.abort(reason)
    await expect(waiting).rejects.toBe(reason)
    await expect(account.take(1, controller.signal)).rejects.toBe(reason)
    account.give(1)
    expect(budget.count).toBe(0)
    expect(account.tryTake(1)).toBe(true)
  })

  test('an abort after the room was given changes nothing', async () => {
    const budget = new InFlightBudget({ maxInFlight: 1, maxInFlightBytes: 1000 })
    const account = budget.open()
    fill(account)
    const controller = new AbortController()
    const waiting = account.take(1, controller.signal)
    account.give(1)
    controller.abort(new Error('late'))
    await waiting
    expect(budget.count).toBe(1)
  })

  test('closing an account gives everything back; settling later changes nothing', async () => {
    const budget = new InFlightBudget({ maxInFlight: 4, maxInFlightBytes: 1000 })
    const [closing, staying] = [budget.open(), budget.open()]
    fill(closing, 10)
    const waiting = taking(staying)
    closing.close()
    closing.close()
    await waiting.done
    expect({ count: budget.count, bytes: budget.bytes }).toEqual({ count: 1, bytes: 1 })
    closing.give(10)
    expect({ count: budget.count, bytes: budget.bytes }).toEqual({ count: 1, bytes: 1 })
  })

  test('a closed account takes nothing any more, waiting or not', async () => {
    const budget = new InFlightBudget({ maxInFlight: 1, maxInFlightBytes: 1000 })
    const [closing, staying] = [budget.open(), budget.open()]
    fill(staying)
    const waiting = closing.take(1, never)
    closing.close()
    await expect(waiting).rejects.toThrow(ClosedError)
    staying.give(1)
    expect(closing.tryTake(1)).toBe(false)
    await expect(closing.take(1, never)).rejects.toThrow(ClosedError)
    expect(budget.count).toBe(0)
  })

  test('P7: stays within its limits and forgets nobody, whatever happens', async () => {
    const command = fc.record({
      do: fc.constantFrom('take', 'take', 'take', 'give', 'give', 'abort', 'close', 'open'),
      who: fc.nat(5),
      bytes: fc.integer({ min: 0, max: 60 }),
    })
    const limits = fc.record({
      maxInFlight: fc.integer({ min: 1, max: 30 }),
      maxInFlightBytes: fc.integer({ min: 1, max: 100 }),
    })
    await fc.assert(
      fc.asyncProperty(limits, fc.array(command, { maxLength: 80 }), async (limit, commands) => {
        const budget = new InFlightBudget(limit)
        const holders = Array.from({ length: 3 }, () => new Holder(budget.open()))
        for (const { do: action, who, bytes } of commands) {
          if (action === 'open' && holders.length < 6) holders.push(new Holder(budget.open()))
          const holder = holders[who % holders.length]!
          if (action === 'take') holder.take(bytes)
          if (action === 'give') holder.give()
          if (action === 'abort') holder.abort()
          if (action === 'close' && holders.length > 1) {
            holder.account.close()
            holders.splice(holders.indexOf(holder), 1)
          }
          await settled()
          const held = holders.flatMap((each) => each.held)
          expect(budget.count).toBe(held.length)
          expect(budget.bytes).toBe(held.reduce((sum, each) => sum + each, 0))
          expect(budget.count).toBeLessThanOrEqual(limit.maxInFlight)
          // Over the byte limit only by records that accounts with nothing in flight were given.
          const largest = holders.map((each) => Math.max(0, ...each.held)).reduce((sum, each) => sum + each, 0)
          expect(budget.bytes).toBeLessThanOrEqual(limit.maxInFlightBytes + largest)
        }
        // Nobody waits for ever: as others settle, every wait is served.
        for (let round = 0; round < 500 && holders.some((each) => each.waiting > 0); round++) {
          for (const holder of holders) holder.give()
          await settled()
        }
        expect(holders.map((each) => each.waiting)).toEqual(holders.map(() => 0))
      }),
      { numRuns: 100 },
    )
  })
})

/** One account with what it holds and how often it waits. */
class Holder {
  readonly account: BudgetAccount
  readonly held: number[] = []
  waiting = 0
  #abort = new AbortController()

  constructor(account: BudgetAccount) {
    this.account = account
  }

  take(bytes: number): void {
    this.waiting++
    this.account.take(bytes, this.#abort.signal).then(
      () => {
        this.held.push(bytes)
        this.waiting--
      },
      () => this.waiting--,
    )
  }

  give(): void {
    const bytes = this.held.shift()
    if (bytes !== undefined) this.account.give(bytes)
  }

  abort(): void {
    this.#abort.abort(new Error('enough'))
    this.#abort = new AbortController()
  }
}
