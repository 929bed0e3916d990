// Buttons for the pages of a list. The server returns one page at a time, with the name after which the next page begins.

interface Place {
  after: string;
  next: string | null | undefined;
  onMove: (after: string) => void;
}

export function Pager({ after, next, onMove }: Place) {
  return (
    <div class="bar">
      <button type="button" disabled={after === ''} onClick={() => onMove('')}>
        First page
      </button>
      <button type="button" disabled={!next} onClick={() => onMove(next ?? '')}>
        Next page
      </button>
    </div>
  );
}
