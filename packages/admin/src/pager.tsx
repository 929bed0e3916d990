// From page to page of a list that the server gives in parts: each part names what the next one comes after.

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
