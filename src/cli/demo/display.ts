/** Where the demo is shown: a live screen in a terminal, lines elsewhere. */
import { createLogUpdate } from 'log-update'
import { clock, type DemoEvent, type DemoState, renderLine, renderScreen } from './screen.ts'

export interface Display {
  /** Called several times a second. */
  update(state: DemoState): void
  event(event: DemoEvent): void
  /** Leaves the last picture and gives the cursor back. */
  close(): void
}

export function demoDisplay(stdout: NodeJS.WriteStream): Display {
  return stdout.isTTY ? terminalDisplay(stdout) : lineDisplay(stdout)
}

function terminalDisplay(stdout: NodeJS.WriteStream): Display {
  const draw = createLogUpdate(stdout)
  const hasColour = stdout.hasColors(process.env)
  return {
    update: (state) => draw(renderScreen(state, { columns: stdout.columns, rows: stdout.rows }, hasColour)),
    event: () => undefined, // part of the state
    close: () => draw.done(),
  }
}

/** Events as they happen, and one line a second. */
function lineDisplay(stdout: NodeJS.WritableStream): Display {
  let shownSecond = -1
  return {
    update(state) {
      const second = Math.floor(state.elapsedMs / 1000)
      if (second === shownSecond) return
      shownSecond = second
      stdout.write(`${renderLine(state)}\n`)
    },
    event: ({ atMs, text }) => stdout.write(`${clock(atMs)}  ${text}\n`),
    close: () => undefined,
  }
}
