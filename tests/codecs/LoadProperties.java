import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import java.util.TreeSet;

/** Loads each line of stdin (base64 of a file) as Properties and prints key=value pairs, or REFUSED. */
public class LoadProperties {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(Base64.getDecoder().decode(line)));
            } catch (IllegalArgumentException refused) {
                System.out.println("REFUSED");
                continue;
            }
            StringBuilder told = new StringBuilder();
            for (String key : new TreeSet<>(properties.stringPropertyNames())) {
                told.append(base64(key)).append(':').append(base64(properties.getProperty(key))).append(' ');
            }
            System.out.println(told);
        }
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
