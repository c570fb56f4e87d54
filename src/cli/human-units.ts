/** Numbers and times as people read them. */

/** `12,345` */
export function count(value: number): string {
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ',')
}

/** `0.4 s`, `3 m 12 s`, `3 h 12 m`, `2 d 3 h`: two figures are enough to act on. */
export function duration(ms: number): string {
  const seconds = Math.max(0, ms) / 1000
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`
  const units = [
    ['d', 86_400],
    ['h', 3600],
    ['m', 60],
    ['s', 1],
  ] as const
  const whole = Math.round(seconds)
  const first = units.findIndex(([, size]) => whole >= size)
  const [major, minor] = [units[first]!, units[first + 1]!]
  return `${Math.floor(whole / major[1])} ${major[0]} ${Math.floor((whole % major[1]) / minor[1])} ${minor[0]}`
}

/** `1 split`, `2 splits` */
export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`
}
