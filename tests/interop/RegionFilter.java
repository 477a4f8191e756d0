import org.apache.bookkeeper.mledger.Entry;
import org.apache.pulsar.broker.service.plugin.EntryFilter;
import org.apache.pulsar.broker.service.plugin.FilterContext;

/** An EntryFilter for `region=us` that says its verdict on each entry. */
public class RegionFilter implements EntryFilter {
    @Override
    public FilterResult filterEntry(Entry entry, FilterContext context) {
        boolean holds = context.getMsgMetadata().getPropertiesList().stream()
                .anyMatch(pair -> pair.getKey().equals("region") && pair.getValue().equals("us"));
        System.out.println("VERDICT " + entry.getLedgerId() + ":" + entry.getEntryId() + " " + holds);
        return holds ? FilterResult.ACCEPT : FilterResult.REJECT;
    }

    @Override
    public void close() {}
}
