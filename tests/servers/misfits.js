() => {
  const wrong = [];
  const label = (element) => `${element.tagName}.${element.getAttribute("class") || ""} ${(element.textContent || "").trim().slice(0, 40)}`;
  const isShown = (element) => element.checkVisibility() && !element.closest(".hidden, .skip, thead");
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push(`the page is ${document.documentElement.scrollWidth - width} px wider than the window`);
  for (const element of document.querySelectorAll("body *")) {
    if (!isShown(element) || element.closest(".curves")) continue;
    const box = element.getBoundingClientRect();
    if (box.right > width + 1 || box.left < -1) wrong.push(`outside: ${label(element)} ${Math.round(box.left)} to ${Math.round(box.right)}`);
  }
  for (const cell of document.querySelectorAll("td, tbody th")) {
    if (cell.closest("details:not([open])")) continue;
    if (getComputedStyle(cell).display === "none") wrong.push(`column not shown: ${label(cell)}`);
    if (cell.scrollWidth > cell.clientWidth + 1) wrong.push(`cut: ${label(cell)} ${cell.scrollWidth} > ${cell.clientWidth}`);
  }
  for (const table of document.querySelectorAll("table")) {
    const headings = [...table.querySelectorAll("thead th")].map((heading) => heading.textContent.trim());
    for (const row of table.tBodies[0].rows) {
      const labels = [...row.cells].map((cell) => cell.dataset.label.trim());
      if (labels.join("|") !== headings.join("|")) wrong.push(`labels: ${labels} are not ${headings}`);
    }
  }
  for (const text of document.querySelectorAll("svg text")) {
    if (isShown(text) && text.textContent && text.getBoundingClientRect().height < 10) wrong.push(`small: ${label(text)}`);
  }
  for (const chart of document.querySelectorAll("svg.chart, svg.bars")) {
    if (!isShown(chart)) continue;
    const box = chart.getBoundingClientRect();
    for (const text of chart.querySelectorAll("text")) {
      const inner = text.getBoundingClientRect();
      if (isShown(text) && (inner.left < box.left - 1 || inner.right > box.right + 1 || inner.bottom > box.bottom + 1 || inner.top < box.top - 1)) wrong.push(`cut in a chart: ${label(text)}`);
    }
  }
  return wrong;
}
