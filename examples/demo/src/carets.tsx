// The cursors and selections of other users in the text of an entry. An input has no positions of its letters, so they are measured.

import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Place } from './cursors.ts';
import { colourOf } from './user.ts';

let context: CanvasRenderingContext2D | null | undefined;

/** The width of `text` in pixels, in the font of `element`. */
function widthOf(text: string, element: Element): number {
  context ??= document.createElement('canvas').getContext('2d');
  if (!context) return 0;
  context.font = getComputedStyle(element).font;
  return context.measureText(text).width;
}

export function Carets({ places, text }: { places: Place[]; text: string }) {
  const marks = useRef<HTMLSpanElement>(null);
  const [drawn, setDrawn] = useState<Array<{ user: string; left: number; width: number }>>([]);
  useLayoutEffect(() => {
    const input = marks.current?.previousElementSibling;
    if (!(input instanceof HTMLInputElement)) return;
    const begin = parseFloat(getComputedStyle(input).paddingLeft) + 1 - input.scrollLeft;
    setDrawn(
      places.flatMap(({ user, selection }) => {
        if (!selection) return [];
        const [start, end] = selection;
        return [{ user, left: begin + widthOf(text.slice(0, start), input), width: widthOf(text.slice(start, end), input) }];
      }),
    );
  }, [places, text]);
  return (
    <span class="carets" ref={marks} aria-hidden="true">
      {drawn.map(({ user, left, width }) => (
        <Mark key={user} colour={colourOf(user)} left={left} width={width} />
      ))}
    </span>
  );
}

/** The policy of the page forbids inline styles in markup; a script may set them. */
function Mark({ colour, left, width }: { colour: string; left: number; width: number }) {
  return <span class={`caret ${colour}`} style={{ transform: `translateX(${left}px)`, width: `${Math.max(2, width)}px` }} />;
}
