// Data links: addresses that name the labels and the value of a series.

/** Links of a series as `{title, href, blank}`; those whose labels it lacks are left out. */
export function linksOf(list, series, context, value = null, time = null) {
  const names = {
    "__series.name": series.name, "__field.name": series.name, "__value.raw": String(value ?? ""),
    "__value.text": String(value ?? ""), "__value.time": time === null ? "" : String(Math.round(time * 1000)),
  };
  for (const [name, text] of Object.entries(series.labels ?? {})) {
    names[`__field.labels.${name}`] = String(text);
    names[`__data.fields.${name}`] = String(text);
  }
  const address = Object.fromEntries(Object.entries(names).map(([name, text]) => [name, encodeURIComponent(text)]));
  return (list ?? []).flatMap(({ title, url, targetBlank }) => {
    const href = context.link(url, address);
    if (/\$\{__(field|data|series|value)/.test(href) || !/^(https?:\/\/|\/(?!\/))/.test(href)) return [];
    return [{ title: context.replace(title ?? "", {}, names), href, blank: Boolean(targetBlank) }];
  });
}
